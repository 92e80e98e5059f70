"""What `make test-deploy` does with `deploy/`: linters, and the image's steps without an engine."""

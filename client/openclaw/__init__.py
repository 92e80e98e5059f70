"""The files of the plugin for OpenClaw: JavaScript, which Python only copies."""

"""What one client or account can take from the others: requests, bytes, connections, places in a
queue; a module each."""

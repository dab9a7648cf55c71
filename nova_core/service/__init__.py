"""The optimizer as a service for engines: HTTP, JSON and server-sent events (`nova serve`)."""

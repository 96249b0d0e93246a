"""What connects the core to servers, clients and frameworks."""

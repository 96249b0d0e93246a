"""The shapes of both sides: ASGI to the client, the port to the server, JSON-RPC in between.

Every other room uses them; they use no room.
"""

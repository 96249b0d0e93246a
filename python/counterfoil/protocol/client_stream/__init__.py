"""The client's side of one stream, without I/O: what happened goes in, what to do comes out.

It drives the client and the gateway's upstream leg.  It opens nothing, waits for nothing and reads no clock.
"""

from counterfoil.protocol.client_stream.stream import ClientStream as ClientStream

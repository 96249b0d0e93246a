"""What the gateway remembers of a session and of its principal: facts seen on the way, all forgettable.

Whoever answers a request asks it; it answers none.
"""

"""What stands behind the gateway, a URL or an app: found, called and read.

`application` finds the upstream of a request here; `calls` and `answering` send through it.
"""

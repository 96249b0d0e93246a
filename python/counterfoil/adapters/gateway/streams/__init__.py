"""A stream on its way: appended to the replay log, and written to a connection.

`calls` fills it; what answers a POST or a GET writes it.
"""

"""What the processes of one gateway ask and tell each other, so that any of them may be reached.

`answering` asks; `adapters.peers` carries the questions, and `inbox` answers them.
"""

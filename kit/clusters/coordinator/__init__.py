"""What decides in a cluster: which operations match, when a motion is over, who waits for ever.

Messages and times come in, messages go out. Nothing here forks, opens a file or a socket, or looks at a clock, so a
coordinator can stand in any process that the messages reach.
"""

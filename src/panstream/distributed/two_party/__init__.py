"""The two machines that hold shares, and the front end that deals to them: steps that are durable on both or on
neither, the wire between them, and the engine's states on top.
"""

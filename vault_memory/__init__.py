"""Long-term memory for AI agents, made from the notes a person already keeps."""

__version__ = "0.1.0"

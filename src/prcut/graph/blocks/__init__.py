"""The graph of data larger than memory, built block by block and joined."""

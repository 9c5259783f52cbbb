"""The graph of more rows than memory holds, and pairs drawn from it, through files.

The public names are in :mod:`prcut.pipeline`; here one of them would hide the module of its name.
"""

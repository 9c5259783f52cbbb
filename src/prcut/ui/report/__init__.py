"""Reports: inspect a clustering and show it as one HTML file.

Use :func:`prcut.ui.write_report`, :func:`prcut.ui.inspect_run` and :class:`prcut.ui.Inspection`.
"""

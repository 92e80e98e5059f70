"""Reading memories that other programs, people or memrelay itself wrote to files.

It does not own storing what was read (`storing.py` does, through a client) or writing files
(`exporting.py`). Readers yield what they find, place by place, and stop at no bad entry.
"""

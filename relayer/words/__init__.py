"""Words of texts and queries: their spellings, stems and forms.

Not here: hashing them (`sealed.index`), ranking (`query`). Pure.
"""

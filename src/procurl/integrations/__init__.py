"""Other people's libraries: one file per library, each imported only by those who use it.

Everything here is a thin client of the same environments and teachers; nothing is written twice.
"""

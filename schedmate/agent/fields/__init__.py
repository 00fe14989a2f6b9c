"""From what a program was seen to do to the fields of the metadata, a module a group of fields."""

"""Reading and writing: tables, columns, files, vocabularies, streams, folders that are whole or not there."""

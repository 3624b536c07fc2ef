"""One reader a format, found by the file name's ending."""

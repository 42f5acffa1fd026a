"""The live page: runs and comparisons below a folder, in a browser, while they run (`evomal serve`)."""

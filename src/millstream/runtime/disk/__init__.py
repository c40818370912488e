"""Files: the disk port on real files, the threads of the log and of segments, LMDB, the checkpoint lock."""

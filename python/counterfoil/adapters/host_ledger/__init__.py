"""One ledger for the processes of one host: one of them owns the file, the others ask that one."""

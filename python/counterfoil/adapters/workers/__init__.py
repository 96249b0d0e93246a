"""Several processes behind one listening socket: started, watched, added up, replaced one by one."""

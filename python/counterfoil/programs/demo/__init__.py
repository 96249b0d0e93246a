"""What `counterfoil demo` runs."""

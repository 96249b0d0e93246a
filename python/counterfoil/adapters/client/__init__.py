"""The client: requests that end, streams that resume on evidence; over httpx2, loaded when it is used."""

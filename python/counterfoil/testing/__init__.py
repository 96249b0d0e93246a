"""Tools for tests of streams that break: links, cuts, and the pieces they are made of."""

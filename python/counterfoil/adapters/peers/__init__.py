"""What processes of one gateway ask each other: the owner of a stream answers, whoever is reached."""

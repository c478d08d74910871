"""What runs show: points in a csv file, pictures and tables made from it, and verdicts on the paper's claims."""

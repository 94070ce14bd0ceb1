"""Instances, images and prices of Amazon EC2 in one account.

Start with `cloud.py`. `machines.py` lists and changes instances, `images.py` uploads images,
`prices.py` reads the price list, `account.py` opens the connection.
"""

from recapture import case

def broken(:
    pass

raise SystemExit('bye')

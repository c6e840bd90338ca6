raise RuntimeError('this file\nis not for import')

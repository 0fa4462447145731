from dalsegno.log.facts import install

install()

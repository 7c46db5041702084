"""What pyproject.toml cannot say: the extensions that install/backend.py has compiled."""

from setuptools import setup

from install.backend import TakeCompiled, extensions, options

setup(ext_modules=extensions(), cmdclass={"build_ext": TakeCompiled}, options=options())

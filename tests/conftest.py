from hypothesis import settings

settings.register_profile("slotkeeper", deadline=None)  # a busy machine is no failure; pytest-timeout bounds a test
settings.load_profile("slotkeeper")

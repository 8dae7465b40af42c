"""Transformations for an `IngestionPipeline`, so that neighbors can be found later."""

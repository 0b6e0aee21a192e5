"""Trainers on stream tasks: sequence models, classifiers of rows, detectors, and self-supervised encoders."""

"""Tests of the model of what answers depend on."""

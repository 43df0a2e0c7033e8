"""Operations on tensors: conversion of arrays to the engine's operations, and torch's operators."""

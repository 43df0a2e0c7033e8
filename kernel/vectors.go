package kernel

import "embed"

// Vectors holds the conformance vectors below testdata/vectors. Package conform reads and runs
// them. A binary that does not refer to Vectors does not contain them.
//
//go:generate python3 testdata/generate.py
//go:generate python3 testdata/generate_voxels.py
//go:generate python3 testdata/generate_images.py
//go:embed testdata/vectors/*.json testdata/vectors/ops/*.json testdata/vectors/voxels/*.json testdata/vectors/images/*.json
var Vectors embed.FS

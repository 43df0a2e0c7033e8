package cuda

import (
	"testing"
	"unsafe"
)

// TestVoxelLayout checks the size of the struct. The kernels check it too.
func TestVoxelLayout(t *testing.T) {
	var v voxelParams
	for what, is := range map[string][2]uintptr{
		"Voxel":            {unsafe.Sizeof(v), 416},
		"Voxel.words":      {unsafe.Offsetof(v.words), 80},
		"Voxel.lo":         {unsafe.Offsetof(v.lo), 296},
		"Voxel.row_bytes":  {unsafe.Offsetof(v.rowBytes), 380},
		"Voxel.point_type": {unsafe.Offsetof(v.pointType), 396},
		"Depth":            {unsafe.Sizeof(depthParams{}), 200},
		"TSDF":             {unsafe.Sizeof(tsdfParams{}), 224},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d, not %d", what, is[0], is[1])
		}
	}
}

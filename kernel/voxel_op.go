package kernel

// VoxelMode says what a voxel holds.
type VoxelMode uint8

const (
	Occupancy  VoxelMode = iota // uint8 0 or 1; int32, float32 or, with Bits, one bit
	Count                       // int32
	Sum                         // float32 [..., F]: a float64 sum in point order, rounded once
	Average                     // Sum, one division before the rounding
	Maximum                     // float32 [..., F]; NaN is skipped, -0 < +0
	Minimum                     //
	FirstPoint                  // the features of the point of lowest index
)

// Outside says what happens to points outside the grid.
type Outside uint8

const (
	DropOutside Outside = iota
	ClipOutside         // into the nearest cell
	FailOutside         // an error that names the first
)

// VoxelOp sorts points into the cells of a grid: f = floor((p-Min)/Size) in IEEE float32, compared as a float with 0 ≤ f < Grid.
//
// Points are [N,3], [B,N,3], or [sum of N, 3] with Offsets; Features have the same leading extents, then F. Dense: Out is [(B,)X,Y,Z] or
// [(B,)X,Y,Z,F]. Sparse: Coords, and what the mode needs of Rows and Counts, in ascending order of the flat index, and Found.
type VoxelOp struct {
	Points           Tensor // floating point, read as float32
	Features         *Tensor
	Lengths, Offsets *Tensor // int64 [B], [B+1]
	Min, Size        [3]float32
	Grid             [3]int
	Mode             VoxelMode
	Outside          Outside
	Bits             bool    // occupancy: bit i of byte i/8 is the cell of flat index i
	Fast             bool    // sum and average: float32 additions in any order
	Fill             float32 // of empty cells, under Maximum, Minimum and FirstPoint
	Out              *Tensor // dense
	Coords           *Tensor // sparse: int32 [capacity, 4]: b, x, y, z
	Rows             *Tensor // sparse: float32 [capacity, F]
	Counts           *Tensor // sparse: int32 [capacity]
	Found            *Tensor // sparse: int64 [1]: cells that are occupied, also beyond the capacity
	Stats            *Tensor // int64 [3]: points inside, outside, not finite
	Scratch          *Tensor // uint8: what the back end asks for
}

// Tensors are the op's tensors, in the order in which a prepared launch takes their addresses.
func (op *VoxelOp) Tensors() []*Tensor {
	return present(nil, &op.Points, op.Features, op.Lengths, op.Offsets, op.Out, op.Coords, op.Rows, op.Counts, op.Found, op.Stats, op.Scratch)
}

// DepthOp makes points of a depth image: z = depth·Scale, x = ((u-cx)·z)/fx, y = ((v-cy)·z)/fy, then the pose. A pixel without depth (0, not
// finite) is NaN and not valid.
type DepthOp struct {
	Depth  Tensor       // uint16 or floating point [H,W] or [B,H,W]
	Camera [4]float32   // fx, fy, cx, cy
	Scale  float32      // 0 = 0.001 for integers, 1 for floats
	Pose   *[12]float32 // rows of a 3×4 matrix; fma(r2,z, fma(r1,y, fma(r0,x,t)))
	Out    Tensor       // float32 [(B,)H,W,3]
	Valid  *Tensor      // uint8 [(B,)H,W]
}

// Tensors are the op's tensors, in the order in which a prepared launch takes their addresses.
func (op *DepthOp) Tensors() []*Tensor { return present(nil, &op.Depth, &op.Out, op.Valid) }

// TSDFOp integrates one depth image into a truncated signed distance field, one voxel at a time. A voxel that was never seen has weight 0.
type TSDFOp struct {
	Depth     Tensor // uint16 or floating point [H,W]
	Camera    [4]float32
	Scale     float32
	View      [12]float32 // world to camera, rows of a 3×4 matrix
	Min       [3]float32
	Size      [3]float32
	Truncate  float32 // tau
	MaxWeight float32
	Value     Tensor // float32 [X,Y,Z], read and written
	Weight    Tensor // float32 [X,Y,Z], read and written
}

// Tensors are the op's tensors, in the order in which a prepared launch takes their addresses.
func (op *TSDFOp) Tensors() []*Tensor { return present(nil, &op.Depth, &op.Value, &op.Weight) }

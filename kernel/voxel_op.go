package kernel

// VoxelMode states what a voxel holds.
type VoxelMode uint8

const (
	Occupancy  VoxelMode = iota // 0 or 1: uint8, bool, int32, float32 or, with Bits, one bit
	Count                       // int32
	Sum                         // float32 [..., F]: a float64 sum in point order, rounded once
	Average                     // Sum, divided once before the rounding
	Maximum                     // float32 [..., F]; NaN is skipped, -0 < +0
	Minimum                     // as Maximum; NaN is skipped
	FirstPoint                  // the features of the point with the lowest index
)

// Outside states what happens to points outside the grid.
type Outside uint8

const (
	DropOutside Outside = iota
	ClipOutside         // points move into the nearest cell
	FailOutside         // an error that names the first such point, and no result
)

// VoxelOp sorts points into the cells of a grid. The cell of a point is f = floor((p-Min)/Size) in
// IEEE float32, compared as a float with 0 ≤ f < Grid.
//
// A point with a coordinate that is not finite is dropped under every policy. The cell [b,x,y,z]
// has the flat index ((b·X+x)·Y+y)·Z+z.
//
// Points are [N,3], [B,N,3], or [sum of N, 3] with Offsets. Features have the same leading extents,
// then F. A dense result is Out [(B,)X,Y,Z] or [(B,)X,Y,Z,F]; under Bits it is uint8 [cells of the
// batch / 8, rounded up]. A sparse result is Coords and Found, and Rows and Counts if the mode
// needs them, in ascending order of the flat index. Sparse rows beyond Found are not written.
//
// Sums start at +0 and add in the order of the points, in float64. Float64 features are not rounded
// before they are summed; Maximum, Minimum and FirstPoint round them to float32 when they read
// them. A cell that has only NaN in a channel is -Inf under Maximum and +Inf under Minimum.
type VoxelOp struct {
	Points           Tensor  // floating point, read as float32
	Features         *Tensor // floating point; Occupancy and Count ignore it
	Lengths, Offsets *Tensor // int64 [B], [B+1]
	Min, Size        [3]float32
	Grid             [3]int
	Mode             VoxelMode
	Outside          Outside
	Bits             bool // occupancy: bit i%8 of byte i/8 is the cell with flat index i
	Fast             bool // sum and average: float32 additions in any order
	// Out is already filled with zeros, as new memory is; cells that stay 0 are not written
	Zeroed bool
	Fill   float32 // value of empty cells, under Maximum, Minimum and FirstPoint
	Out    *Tensor // dense
	Coords *Tensor // sparse: int32 [capacity, 4]: b, x, y, z
	Rows   *Tensor // sparse: float32 [capacity, F]
	Counts *Tensor // sparse: int32 [capacity]
	// sparse: int64 [1]: number of occupied cells, including those beyond the capacity
	Found *Tensor
	// int64 [3]: number of points inside, outside and not finite, whatever the policy does with
	// them
	Stats   *Tensor
	Scratch *Tensor // uint8 scratch memory, of the size that the back end requires
	// check lengths and offsets. The host always checks them. A device must wait for the check;
	// without it, a device limits each value to the nearest legal one.
	Validate bool
	// maximal size of a dense result in bytes; 0 = no limit. Layout checks it before anything is
	// allocated.
	Budget int64
}

// Tensors implements Op. Unlike namedTensors, it includes Features under modes that ignore them.
func (op *VoxelOp) Tensors() []*Tensor {
	return presentTensors([]namedTensor{
		{tensor: &op.Points},
		{tensor: op.Features},
		{tensor: op.Lengths},
		{tensor: op.Offsets},
		{tensor: op.Out},
		{tensor: op.Coords},
		{tensor: op.Rows},
		{tensor: op.Counts},
		{tensor: op.Found},
		{tensor: op.Stats},
		{tensor: op.Scratch},
	})
}

// DepthOp converts a depth image to points: z = depth·Scale, x = ((u-cx)·z)/fx, y = ((v-cy)·z)/fy,
// then the pose. Each operation is rounded once to float32. A pixel whose z is 0 or not finite
// becomes NaN and is not valid.
type DepthOp struct {
	Depth  Tensor       // uint16 or floating point [H,W] or [B,H,W]
	Camera [4]float32   // fx, fy, cx, cy
	Scale  float32      // 0 = 0.001 for integers, 1 for floats
	Pose   *[12]float32 // rows of a 3×4 matrix; fma(r2,z, fma(r1,y, fma(r0,x,t)))
	Out    Tensor       // float32 [(B,)H,W,3]
	Valid  *Tensor      // uint8 [(B,)H,W]
}

// Tensors implements Op.
func (op *DepthOp) Tensors() []*Tensor { return presentTensors(op.namedTensors()) }

// TSDFOp integrates one depth image into a truncated signed distance field, one voxel at a time. A
// voxel that was never observed has weight 0; its value is not read.
//
// All steps are float32. Each operation is rounded, and fma is used only where it is written:
//
//   - The center of a voxel is c_a = fma(i_a + 0.5, Size_a, Min_a).
//   - In the camera it is p_r = fma(View_r2, c_z, fma(View_r1, c_y, fma(View_r0, c_x, View_r3))).
//     Voxels with p_z ≤ 0 are skipped.
//   - u = (fx·p_x)/p_z + cx, and v likewise. The pixel is floor(u + 0.5), floor(v + 0.5), compared
//     as floats with the image.
//   - z = depth·Scale. Pixels with z ≤ 0 or not finite are skipped.
//   - sdf = z - p_z. Voxels with sdf < -Truncate are skipped.
//   - d = min(1, sdf / Truncate). If W > 0, V = (W·V + d) / (W + 1) and
//     W = min(W + 1, MaxWeight). Otherwise V = d and W = min(1, MaxWeight).
type TSDFOp struct {
	Depth     Tensor      // uint16 or floating point [H,W]
	Camera    [4]float32  // fx, fy, cx, cy
	Scale     float32     // 0 = 0.001 for integers, 1 for floats
	View      [12]float32 // world to camera: rows of a 3×4 matrix
	Min       [3]float32
	Size      [3]float32
	Truncate  float32 // truncation distance (tau)
	MaxWeight float32
	Value     Tensor // float32 [X,Y,Z], read and written
	Weight    Tensor // float32 [X,Y,Z], read and written
}

// Tensors implements Op.
func (op *TSDFOp) Tensors() []*Tensor { return presentTensors(op.namedTensors()) }

package kernel

// VoxelMode says what a voxel holds.
type VoxelMode uint8

const (
	Occupancy  VoxelMode = iota // 0 or 1: uint8, bool, int32, float32 or, with Bits, one bit
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
	FailOutside         // an error that names the first, and no result
)

// VoxelOp sorts points into the cells of a grid: f = floor((p-Min)/Size) in IEEE float32, compared
// as a float with 0 ≤ f < Grid.
//
// A point with a coordinate that is not finite is dropped under every policy. The cell [b,x,y,z]
// has the flat index ((b·X+x)·Y+y)·Z+z.
//
// Points are [N,3], [B,N,3], or [sum of N, 3] with Offsets; Features have the same leading extents,
// then F. Dense: Out is [(B,)X,Y,Z] or [(B,)X,Y,Z,F], or uint8 [cells of the batch / 8, rounded up]
// under Bits. Sparse: Coords, and what the mode needs of Rows and Counts, in ascending order of the
// flat index, and Found; rows beyond Found are not written.
//
// Sums begin at +0 and add in the order of the points, in float64 (float64 features are not rounded
// first; Maximum, Minimum and FirstPoint round them to float32 as they read them). A cell that has
// only NaN in a channel holds -Inf under Maximum and +Inf under Minimum.
type VoxelOp struct {
	Points           Tensor  // floating point, read as float32
	Features         *Tensor // floating point; Occupancy and Count do not look at it
	Lengths, Offsets *Tensor // int64 [B], [B+1]
	Min, Size        [3]float32
	Grid             [3]int
	Mode             VoxelMode
	Outside          Outside
	Bits             bool // occupancy: bit i of byte i/8 is the cell of flat index i
	Fast             bool // sum and average: float32 additions in any order
	// Out holds zeros already, as fresh memory does: what stays 0 is not written
	Zeroed bool
	Fill   float32 // of empty cells, under Maximum, Minimum and FirstPoint
	Out    *Tensor // dense
	Coords *Tensor // sparse: int32 [capacity, 4]: b, x, y, z
	Rows   *Tensor // sparse: float32 [capacity, F]
	Counts *Tensor // sparse: int32 [capacity]
	Found  *Tensor // sparse: int64 [1]: cells that are occupied, also beyond the capacity
	// int64 [3]: points inside, outside, not finite, whatever the policy makes of them
	Stats   *Tensor
	Scratch *Tensor // uint8: what the back end asks for
	// lengths and offsets are proved. The host always proves them; a device has to wait for that,
	// and otherwise takes the nearest value that makes sense
	Validate bool
	// bytes that a dense result may have; 0 = as many as can be counted. See Layout, which looks
	// before anything is allocated
	Budget int64
}

// Tensors are the op's: see Op.
func (op *VoxelOp) Tensors() []*Tensor {
	return tensors([]named{
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

// DepthOp makes points of a depth image: z = depth·Scale, x = ((u-cx)·z)/fx, y = ((v-cy)·z)/fy,
// then the pose; each operation is one float32 rounding. A pixel whose z is 0 or not finite is NaN
// and not valid.
type DepthOp struct {
	Depth  Tensor       // uint16 or floating point [H,W] or [B,H,W]
	Camera [4]float32   // fx, fy, cx, cy
	Scale  float32      // 0 = 0.001 for integers, 1 for floats
	Pose   *[12]float32 // rows of a 3×4 matrix; fma(r2,z, fma(r1,y, fma(r0,x,t)))
	Out    Tensor       // float32 [(B,)H,W,3]
	Valid  *Tensor      // uint8 [(B,)H,W]
}

// Tensors are the op's: see Op.
func (op *DepthOp) Tensors() []*Tensor { return tensors(op.named()) }

// TSDFOp integrates one depth image into a truncated signed distance field, one voxel at a time. A
// voxel that was never seen has weight 0: its value is not read.
//
// In float32, each operation rounded, fma where it is written: the centre is c_a = fma(i_a + 0.5,
// Size_a, Min_a); in the camera p_r = fma(View_r2, c_z, fma(View_r1, c_y, fma(View_r0, c_x,
// View_r3))); p_z ≤ 0 is skipped. u = (fx·p_x)/p_z + cx, v likewise; the pixel is floor(u + 0.5),
// floor(v + 0.5), compared as floats with the image. z = depth·Scale; not finite or ≤ 0 is skipped.
// sdf = z - p_z; below -Truncate is skipped. d = min(1, sdf / Truncate). Where W > 0: V = (W·V + d)
// / (W + 1) and W = min(W + 1, MaxWeight); else V = d, W = min(1, MaxWeight).
type TSDFOp struct {
	Depth     Tensor      // uint16 or floating point [H,W]
	Camera    [4]float32  // fx, fy, cx, cy
	Scale     float32     // 0 = 0.001 for integers, 1 for floats
	View      [12]float32 // world to camera, rows of a 3×4 matrix
	Min       [3]float32
	Size      [3]float32
	Truncate  float32 // tau
	MaxWeight float32
	Value     Tensor // float32 [X,Y,Z], read and written
	Weight    Tensor // float32 [X,Y,Z], read and written
}

// Tensors are the op's: see Op.
func (op *TSDFOp) Tensors() []*Tensor { return tensors(op.named()) }

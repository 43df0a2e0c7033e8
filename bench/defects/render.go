package defects

import (
	"math"
	"math/rand/v2"
	"sync"
)

const side = 96 // pixels of an image

// scene holds the tables that rendering needs. They are the same for all episodes.
type scene struct {
	background [cameras][side * 2 * side * 2][3]float32 // tiles without a seam
	noise      [1 << 16]float32                         // normal, deviation 1
}

// theScene returns the scene. The first call computes it.
var theScene = sync.OnceValue(func() *scene {
	s, rng := &scene{}, rand.New(rand.NewPCG(7, 7))
	for i := range s.noise {
		s.noise[i] = float32(rng.NormFloat64())
	}
	const n = side * 2
	for c := range s.background {
		var waves [24][6]float64
		for w := range waves {
			waves[w] = [6]float64{
				float64(rng.IntN(21) - 10), float64(rng.IntN(21) - 10), 2 * math.Pi * rng.Float64(),
				8 * rng.Float64(), 8 * rng.Float64(), 8 * rng.Float64(),
			}
		}
		for i := range s.background[c] {
			x, y := float64(i%n), float64(i/n)
			p := [3]float64{130, 120, 110}
			for _, w := range waves {
				v := math.Sin(2*math.Pi*(w[0]*x+w[1]*y)/n + w[2])
				for k := range p {
					p[k] += w[3+k] * v
				}
			}
			if (i%n/12+i/n/12)%2 == 0 {
				p[0], p[1], p[2] = p[0]-18, p[1]-18, p[2]-10
			}
			for k := range p {
				s.background[c][i][k] = float32(p[k])
			}
		}
	}
	return s
})

// render draws the image of a row of a camera into pix, side × side RGB.
func (e *episode) render(camera, row int, pix []byte) {
	s, look := theScene(), &e.looks[camera]
	rng := rand.New(rand.NewPCG(e.seed^uint64(camera+1)<<40, uint64(row)))
	if at := e.shown[camera][row]; at < 0 { // a copy of an earlier image
		e.render(camera, -at-1, pix)
		return
	}
	if look.black[row] {
		clear(pix)
		return
	}
	p := e.truth[min(e.shown[camera][row], len(e.truth)-1)]
	image := make([][3]float32, side*side)
	dx, dy := 0.0, 0.0
	if camera == 1 { // a camera on the wrist moves with the arm
		dx, dy = 40*p[0]+20*p[3]+9*p[4], 40*p[1]+20*p[2]+9*p[5]
	}
	s.shift(camera, dx, dy, image)
	e.drawScene(camera, p, image)
	if look.cover > 0 {
		w := int(math.Sqrt(look.cover) * side)
		for y := side/3 - w/3; y < min(side, side/3-w/3+w); y++ {
			for x := side / 4; x < min(side, side/4+w); x++ {
				image[max(y, 0)*side+x] = [3]float32{52, 50, 48}
			}
		}
	}
	blurImage(image, look.blur)
	e.expose(image, look, rng, pix)
	if look.mirrored {
		mirrorPixels(pix)
	}
	if look.glitch[row] {
		for y := side / 4; y < side*3/4; y++ {
			for i := range pix[y*side*3 : (y+1)*side*3] {
				pix[y*side*3+i] = byte(40 * (y / 8 % 6))
			}
		}
	}
}

// shift draws the background of a camera, moved by a number of pixels.
func (s *scene) shift(camera int, dx, dy float64, image [][3]float32) {
	const n = side * 2
	left, top := math.Floor(dx), math.Floor(dy)
	u, v := float32(dx-left), float32(dy-top)
	tile := &s.background[camera]
	for y := range side {
		y0 := ((y+int(top))%n + n) % n
		y1 := (y0 + 1) % n
		for x := range side {
			x0 := ((x+int(left))%n + n) % n
			x1 := (x0 + 1) % n
			a, b, c, d := &tile[y0*n+x0], &tile[y0*n+x1], &tile[y1*n+x0], &tile[y1*n+x1]
			for k := range 3 {
				upper, lower := a[k]+u*(b[k]-a[k]), c[k]+u*(d[k]-c[k])
				image[y*side+x][k] = upper + v*(lower-upper)
			}
		}
	}
}

// drawScene draws cubes and the arm, or the fingers in the camera of the wrist.
func (e *episode) drawScene(camera int, p pose, image [][3]float32) {
	opening := 3 + 5*(1-p[gripper])
	if camera == 1 {
		drawDisc(image, side/2-opening*2, side*0.8, 6, [3]float32{40, 42, 50})
		drawDisc(image, side/2+opening*2, side*0.8, 6, [3]float32{40, 42, 50})
		return
	}
	place := float64(e.seed%17) - 8
	drawDisc(image, 24+place/2, 30, 6, [3]float32{200, 40, 40})
	drawDisc(image, 70+place/2, 34, 6, [3]float32{40, 170, 60})
	a := -math.Pi/2 + 0.9*p[0]
	b := a + 1.1*p[1] + 0.5*p[2]
	elbow := [2]float64{48 + 34*math.Cos(a), 92 + 34*math.Sin(a)}
	tip := [2]float64{elbow[0] + 28*math.Cos(b), elbow[1] + 28*math.Sin(b)}
	for i := range 24 {
		t := float64(i) / 23
		drawDisc(image, 48+t*(elbow[0]-48), 92+t*(elbow[1]-92), 4, [3]float32{235, 235, 240})
		drawDisc(image, elbow[0]+t*(tip[0]-elbow[0]), elbow[1]+t*(tip[1]-elbow[1]), 3,
			[3]float32{60, 90, 200})
	}
	drawDisc(image, tip[0]-opening, tip[1], 2.5, [3]float32{30, 30, 30})
	drawDisc(image, tip[0]+opening, tip[1], 2.5, [3]float32{30, 30, 30})
}

// drawDisc draws a disc with a soft edge.
func drawDisc(image [][3]float32, cx, cy, r float64, colour [3]float32) {
	for y := max(0, int(cy-r-1)); y <= min(side-1, int(cy+r+1)); y++ {
		for x := max(0, int(cx-r-1)); x <= min(side-1, int(cx+r+1)); x++ {
			cover := float32(min(1, max(0, r+0.5-math.Hypot(float64(x)-cx, float64(y)-cy))))
			for k := range colour {
				v := &image[y*side+x][k]
				*v += cover * (colour[k] - *v)
			}
		}
	}
}

// blurImage convolves with a normal distribution, as passes of 3 taps of at most 0.7 pixels each.
func blurImage(image [][3]float32, sigma float64) {
	line := make([][3]float32, side)
	for left := sigma * sigma; left > 1e-4; left -= 0.5 {
		w := float32(min(left, 0.5) / 2) // a kernel (w, 1−2w, w) has the variance 2w
		for _, step := range [2][2]int{{1, side}, {side, 1}} {
			for k := range side {
				for i := range line {
					line[i] = image[k*step[1]+i*step[0]]
				}
				for i := range line {
					a, b := line[max(i-1, 0)], line[min(i+1, side-1)]
					for c := range 3 {
						image[k*step[1]+i*step[0]][c] += w * (a[c] + b[c] - 2*line[i][c])
					}
				}
			}
		}
	}
}

// expose writes the pixels with gain, cast, flicker and noise.
func (e *episode) expose(image [][3]float32, look *imageLook, rng *rand.Rand, pix []byte) {
	s := theScene()
	flicker := look.flicker * rng.NormFloat64()
	at := rng.IntN(1 << 16)
	for i, p := range image {
		for k, v := range p {
			at = (at + 1) & (1<<16 - 1)
			level := float32(look.gain)*v + float32(look.cast[k]+flicker) +
				float32(look.noise)*s.noise[at]
			pix[3*i+k] = byte(min(255, max(0, level+0.5)))
		}
	}
}

// mirrorPixels swaps left and right.
func mirrorPixels(pix []byte) {
	for y := range side {
		row := pix[y*side*3 : (y+1)*side*3]
		for x := range side / 2 {
			for k := range 3 {
				a, b := 3*x+k, 3*(side-1-x)+k
				row[a], row[b] = row[b], row[a]
			}
		}
	}
}

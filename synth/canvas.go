package synth

import "math"

// canvas draws the world as one camera sees it. Each camera has its own angle and zoom.
type canvas struct {
	width, height int
	background    []byte
	rgb           []byte
	turn          [2]float64 // cosine and sine of the angle
	scale         float64    // pixels per meter
	cx, cy        float64    // position of the arm's base
}

func newCanvas(camera, width, height int) *canvas {
	c := &canvas{
		width:      width,
		height:     height,
		rgb:        make([]byte, width*height*3),
		background: make([]byte, width*height*3),
	}
	angle := []float64{0, 0.35, -0.35, 0.7, -0.7}[camera%5]
	c.turn = [2]float64{math.Cos(angle), math.Sin(angle)}
	_, _, rows := codeLayout(width, height)
	side, _, _ := codeLayout(width, height)
	free := float64(height - rows*side)
	c.scale = min(free/2.35, float64(width)/4.4) * (1 - 0.08*float64(camera%3))
	c.cx, c.cy = float64(width)/2, free-0.12*c.scale
	tint := [][3]int{{34, 38, 46}, {46, 38, 34}, {36, 46, 38}}[camera%3]
	for y := range height {
		for x := range width {
			p := (y*width + x) * 3
			for k := range 3 {
				c.background[p+k] = byte(tint[k] + y*48/height + x*16/width)
			}
		}
	}
	return c
}

// projectPoint returns where a point of the world appears in the image.
func (c *canvas) projectPoint(p [2]float64) (x, y float64) {
	rx := float64(c.turn[0]*p[0]) - float64(c.turn[1]*p[1])
	ry := float64(c.turn[1]*p[0]) + float64(c.turn[0]*p[1])
	return c.cx + float64(rx*c.scale), c.cy - float64(ry*c.scale)
}

// paint draws one image, which is valid until the next call.
func (c *canvas) paint(s *state, episode, row int) []byte {
	copy(c.rgb, c.background)
	for i, d := range s.discs {
		x, y := c.projectPoint(d)
		if i == s.task {
			// A ring marks the goal, so that a policy without language can learn it too.
			c.drawStroke(x, y, x, y, 1.45*discRadius*c.scale, [3]float64{240, 240, 240})
		}
		c.drawStroke(x, y, x, y, discRadius*c.scale, colours[i].rgb)
	}
	elbow, tip := armPoints(s.q)
	bx, by := c.projectPoint([2]float64{})
	ex, ey := c.projectPoint(elbow)
	tx, ty := c.projectPoint(tip)
	c.drawStroke(bx, by, ex, ey, 0.08*c.scale, [3]float64{150, 156, 170})
	c.drawStroke(ex, ey, tx, ty, 0.06*c.scale, [3]float64{190, 196, 208})
	c.drawStroke(ex, ey, ex, ey, 0.09*c.scale, [3]float64{236, 196, 64})
	c.drawStroke(tx, ty, tx, ty, 0.08*c.scale, [3]float64{250, 250, 250})
	drawCode(c.rgb, c.width, c.height, episode, row)
	return c.rgb
}

// drawStroke draws a line with round ends, or a disc if the ends coincide. Its border is blended
// over one pixel.
func (c *canvas) drawStroke(x0, y0, x1, y1, radius float64, colour [3]float64) {
	left, right := max(0, int(min(x0, x1)-radius-1)), min(c.width-1, int(max(x0, x1)+radius+2))
	top, bottom := max(0, int(min(y0, y1)-radius-1)), min(c.height-1, int(max(y0, y1)+radius+2))
	dx, dy := x1-x0, y1-y0
	length2 := float64(dx*dx) + float64(dy*dy)
	for y := top; y <= bottom; y++ {
		for x := left; x <= right; x++ {
			px, py := float64(x)+0.5-x0, float64(y)+0.5-y0
			u := 0.0
			if length2 > 0 {
				u = max(0, min(1, (float64(px*dx)+float64(py*dy))/length2))
			}
			qx, qy := px-float64(u*dx), py-float64(u*dy)
			cover := radius + 0.5 - math.Sqrt(float64(qx*qx)+float64(qy*qy))
			if cover <= 0 {
				continue
			}
			cover = min(1, cover)
			p := (y*c.width + x) * 3
			for k := range 3 {
				old := float64(c.rgb[p+k])
				c.rgb[p+k] = byte(old + float64(cover*(colour[k]-old)) + 0.5)
			}
		}
	}
}

package quality

// imageMetrics are the metrics of frames.
var imageMetrics []metric

// cameraWords is the number of words that describe the frames of a camera.
const cameraWords = 20

// newFrameMeter returns an accumulator for one camera of one episode, with an expected number of
// frames.
func newFrameMeter(int) frameMeter { return nil }

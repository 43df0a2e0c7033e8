package view

const (
	frameBudget    = 48 << 20 // encoded JPEGs
	timelineBudget = 64 << 20 // timestamps of recently viewed episodes
	decoderBudget  = 96 << 20 // idle decoders
	maxCloud       = 200_000  // points of a point cloud
	maxTexts       = 2000     // rows of text in one answer
	maxBody        = 1 << 20  // body of a request
	maxCameras     = 4096     // cameras in the cache
	maxViews       = 4        // alignments in the cache
	framesAhead    = 12       // rows decoded ahead of the requested one
	doctorRows     = 500_000  // a dataset with more rows is diagnosed only on request
)

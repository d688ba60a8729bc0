// A program of the parent's that has nothing to do with Bantam.
int main() { return 0; }
